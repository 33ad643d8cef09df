import { effect, signal } from '@preact/signals';

export type Theme = 'system' | 'light' | 'dark';

const NAME = 'postern.theme';

export const theme = signal<Theme>(storedTheme());

effect(() => {
  document.documentElement.dataset.theme = theme.value;
});

export function chooseTheme(next: Theme): void {
  theme.value = next;
  try {
    if (next === 'system') localStorage.removeItem(NAME);
    else localStorage.setItem(NAME, next);
  } catch {
    // Then it lasts as long as the page.
  }
}

function storedTheme(): Theme {
  try {
    const stored = localStorage.getItem(NAME);
    return stored === 'light' || stored === 'dark' ? stored : 'system';
  } catch {
    return 'system';
  }
}
