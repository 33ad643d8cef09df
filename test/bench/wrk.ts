import { mkdtemp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { run } from './child.ts';
import type { HttpPeer } from './http-peers.ts';

const OWN_LOAD = fileURLToPath(new URL('http-load.js', import.meta.url));

export interface HttpLoad {
  readonly body: string;
  readonly connections: number;
  readonly seconds: number;
  readonly folder: string;
  readonly signal: AbortSignal;
}

/** Whether wrk is there; a load of our own takes its place, which takes more of the processor. */
export async function hasWrk(): Promise<boolean> {
  const said = await run('sh', ['-c', 'command -v wrk || true']);
  return said !== '';
}

/** @returns requests answered in a second. @throws Error when any was not answered with 200 */
export async function requestRate(peer: HttpPeer, load: HttpLoad): Promise<number> {
  return (await hasWrk()) ? wrk(peer, load) : own(peer, load);
}

/** @see https://github.com/wg/wrk/blob/master/SCRIPTING */
async function wrk({ name, url, key }: HttpPeer, { body, connections, seconds, folder, signal }: HttpLoad): Promise<number> {
  const script = join(await mkdtemp(join(folder, 'wrk-')), 'post.lua');
  await writeFile(
    script,
    `wrk.method = "POST"
wrk.body = [==[${body}]==]
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer ${key}"
`,
  );
  const args = ['-t', '1', '-c', String(connections), '-d', `${seconds}s`, '--timeout', '30s', '-s', script, `${url}/api/query`];
  const said = await run('wrk', args, { signal });
  const rate = Number(/^Requests\/sec:\s+([\d.]+)/m.exec(said)?.[1]);
  if (Number.isNaN(rate) || /Non-2xx|Socket errors/.test(said)) throw new Error(`wrk against ${name}: ${said}`);
  return rate;
}

async function own({ url, key }: HttpPeer, { body, connections, seconds, signal }: HttpLoad): Promise<number> {
  const said = await run(process.execPath, [OWN_LOAD, JSON.stringify({ url: `${url}/api/query`, key, body, connections, seconds })], {
    signal,
  });
  return Number(said);
}
