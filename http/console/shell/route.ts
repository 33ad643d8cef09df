import { signal } from '@preact/signals';

/** The screen, and what is shown on it: `#/tables/public.orders` is the screen `tables` with `public.orders`. */
export interface Route {
  readonly screen: string;
  readonly rest: string;
}

/** Only the fragment changes: it works behind any path, and is never sent to a server. */
export const route = signal<Route>(readRoute());

addEventListener('hashchange', () => {
  route.value = readRoute();
});

export function hrefOf(screen: string, rest = ''): string {
  return `#/${screen}${rest === '' ? '' : `/${encodeURIComponent(rest)}`}`;
}

export function goTo(screen: string, rest = ''): void {
  location.hash = hrefOf(screen, rest);
}

function readRoute(): Route {
  const [, screen = '', rest = ''] = /^#\/([a-z]+)(?:\/(.*))?$/.exec(location.hash) ?? [];
  return { screen, rest: decoded(rest) };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
