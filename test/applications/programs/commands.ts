import { createInterface } from 'node:readline';

/** What a program of this folder does when it is told to. */
export interface Commands {
  add(note: string): Promise<unknown>;
  list(): Promise<readonly string[]>;
  end(): Promise<unknown>;
}

/** A command and its reply are a line each; a reply is marked, because libraries write lines too. */
export const REPLY = '@reply ';

/** Says that it is ready, and does what standard input says, one after the other, until that is closed. */
export async function obey(commands: Commands): Promise<void> {
  process.stdout.write(`${REPLY}{"ready":true}\n`);
  for await (const line of createInterface({ input: process.stdin })) {
    const { command, note } = JSON.parse(line);
    const reply = await (command === 'add' ? commands.add(note) : commands.list()).then(
      (value) => ({ value }),
      (error) => ({ error: String(error) }),
    );
    process.stdout.write(`${REPLY}${JSON.stringify(reply)}\n`);
  }
  await commands.end();
  process.exit();
}

/** @throws Error when the variable is not there */
export function variable(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
}
