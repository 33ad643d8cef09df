import { AssertionError } from 'node:assert';
import { type BackendMessage, describeBackend } from './backend-message.ts';
import { matches, shorten } from './template.ts';
import { PATIENCE_MS, type WireClient } from './wire-client.ts';

/** Where a script says that nothing comes. What would come has been on its way for long by then. */
const SILENCE_MS = 500;
const SILENCE = '(silence)';

const ANY_PARAMETERS = 'ParameterStatus *';

/** Reads up to the `count`th message of that name, or until nothing more comes. */
export async function readReplies(client: WireClient, name: string, count: number, timeoutMs = PATIENCE_MS): Promise<string[]> {
  const replies: string[] = [];
  for (let seen = 0; seen < count; ) {
    const message = await client.read(timeoutMs);
    const reply = describe(message);
    replies.push(reply);
    if (message === 'EOF' || message === undefined) break;
    if (nameOf(reply) === name) seen++;
  }
  return replies;
}

function describe(message: BackendMessage | 'EOF' | undefined): string {
  if (message === undefined) return SILENCE;
  return message === 'EOF' ? 'EOF' : describeBackend(message);
}

/** Reads as far as what is expected goes: to the last of the messages it ends with. */
export async function readAsExpected(client: WireClient, expected: readonly string[]): Promise<string[]> {
  const byte = expected[0]?.startsWith('Byte ') ? [`Byte ${await client.readByte()}`] : [];
  const name = nameOf(expected.at(-1));
  if (name === 'Byte') return byte;
  const count = expected.filter((line) => nameOf(line) === name).length;
  return [...byte, ...(await readReplies(client, name, count, name === SILENCE ? SILENCE_MS : PATIENCE_MS))];
}

function nameOf(line = ''): string {
  return line.split(' ', 1)[0] ?? '';
}

/** @throws AssertionError with both sides, those lines that match shown alike */
export function compareReplies(place: string, expected: readonly string[], received: readonly string[]): void {
  const actual = expected.includes(ANY_PARAMETERS) ? gatherParameters(received) : received;
  const wanted = expected.map((line, index) => (matches(line, actual[index] ?? '') ? (actual[index] ?? '') : line));
  if (wanted.length === actual.length && wanted.every((line, index) => line === actual[index])) return;
  const text = (lines: readonly string[]) => lines.map(shorten).join('\n');
  throw new AssertionError({ message: `${place}: not the expected replies`, expected: text(wanted), actual: text(actual) });
}

/** A run of ParameterStatus, whose order and number are the server's affair, as one line. */
function gatherParameters(replies: readonly string[]): string[] {
  const isParameter = (reply: string | undefined) => reply?.startsWith('ParameterStatus ') ?? false;
  return replies.flatMap((reply, index) => {
    if (!isParameter(reply)) return [reply];
    return isParameter(replies[index - 1]) ? [] : [ANY_PARAMETERS];
  });
}
