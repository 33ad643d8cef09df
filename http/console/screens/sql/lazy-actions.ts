import { sayError } from '../../shell/toasts.tsx';
import { currentTab } from './sql-screen-state.ts';

/*
 * What buttons and keys do. The code that reads and runs SQL is loaded after the screen.
 */

type Actions = typeof import('./actions.ts');

export const runHere = () => act(({ runHere: run }) => run());
export const runAll = () => act(({ runAll: run }) => run());
export const explainHere = (kind: 'explain' | 'analyze') => act(({ explainHere: run }) => run(kind));

export function cancel(): void {
  currentTab.peek().run.peek()?.cancel();
}

/** So that the first run does not wait for its code. What fails here is loaded again then. */
export function loadActions(): void {
  Promise.all([import('./actions.ts'), import('./execute-run.ts')]).catch(() => undefined);
}

function act(run: (actions: Actions) => void): void {
  import('./actions.ts').then(run).catch((error) => sayError(error, () => act(run)));
}
