import { isAbort, unreachable } from './api-error.ts';

/**
 * The lines of a reply as they come, several at a time.
 * @throws ApiError when the reply breaks off
 */
export async function* linesOf(response: Response): AsyncGenerator<readonly string[]> {
  const reader = response.body?.getReader();
  if (reader === undefined) return;
  const decoder = new TextDecoder();
  let begun: string[] = [];
  try {
    for (;;) {
      const { done, value } = await readNext(reader);
      if (done) break;
      const [first = '', ...rest] = decoder.decode(value, { stream: true }).split('\n');
      begun.push(first);
      const last = rest.pop();
      if (last === undefined) continue;
      // One line may come in thousands of parts.
      yield [begun.join(''), ...rest];
      begun = [last];
    }
    const last = begun.join('') + decoder.decode();
    if (last !== '') yield [last];
  } finally {
    // Whoever stops reading gives up the call, and the server cancels its statement.
    await reader.cancel().catch(() => undefined);
  }
}

async function readNext(reader: ReadableStreamDefaultReader<Uint8Array>) {
  try {
    return await reader.read();
  } catch (error) {
    if (isAbort(error)) throw error;
    throw unreachable('the reply broke off before its end', false);
  }
}
