import { signal } from '@preact/signals';
import { hasWords } from '../format.ts';
import type { IconName } from '../parts/icon.tsx';

/** Something that can be done from the command palette. */
export interface Command {
  readonly title: string;
  /** What kind of thing it is: `Go to`, `Table`, `Theme`. */
  readonly group: string;
  readonly icon?: IconName;
  /** As people write it: `Ctrl Enter`. */
  readonly keys?: string;
  readonly run: () => void;
}

/** What each screen, while it is shown, adds to the palette. */
export const screenCommands = signal<readonly Command[]>([]);

/** Those that have all words in group or title, best first. */
export function findCommands(commands: readonly Command[], text: string): readonly Command[] {
  const [first] = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = commands.filter(({ title, group }) => hasWords(`${group} ${title}`, text));
  const begins = ({ title }: Command) => (first !== undefined && title.toLowerCase().startsWith(first) ? 0 : 1);
  return found.toSorted((one, other) => begins(one) - begins(other));
}
