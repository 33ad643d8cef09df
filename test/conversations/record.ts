import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Record } from './runner.ts';

/** Collects what first came in place of lines `A< ?` and writes it into the script files, to be read before it is kept. */
export class Recording {
  readonly #folder: string;
  readonly #replies = new Map<string, Map<number, readonly string[]>>();

  constructor(folder: string) {
    this.#folder = folder;
  }

  readonly record: Record = (file, line, messages) => {
    const lines = this.#replies.get(file) ?? new Map<number, readonly string[]>();
    if (!lines.has(line)) lines.set(line, messages);
    this.#replies.set(file, lines);
  };

  save(): void {
    for (const [file, replies] of this.#replies) {
      const path = join(this.#folder, file);
      const lines = readFileSync(path, 'utf8').split('\n');
      const written = lines.flatMap((line, index) => replies.get(index + 1) ?? [line]);
      writeFileSync(path, written.join('\n'));
    }
  }
}
