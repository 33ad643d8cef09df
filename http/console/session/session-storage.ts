/*
 * What lasts over a reload: only in this tab, and only when somebody has chosen to stay signed in. Nothing is ever written to
 * localStorage but the theme.
 */

const PREFIX = 'postern.';
let isKept = false;

/** Whether texts are kept from now on. */
export function keepTexts(keep: boolean): void {
  isKept = keep;
  if (!keep) forgetTexts();
}

export function keepText(name: string, text: string): void {
  if (!isKept) return;
  try {
    sessionStorage.setItem(PREFIX + name, text);
  } catch {
    // It is full, or the browser has none: then it lasts as long as the page.
  }
}

export function keptText(name: string): string | undefined {
  try {
    return sessionStorage.getItem(PREFIX + name) ?? undefined;
  } catch {
    return undefined;
  }
}

export function forgetText(name: string): void {
  try {
    sessionStorage.removeItem(PREFIX + name);
  } catch {
    // There is none.
  }
}

export function forgetTexts(): void {
  try {
    sessionStorage.clear();
  } catch {
    // There is none.
  }
}
