import { once } from 'node:events';
import { request } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { type Bench, isAskedFor } from './bench.ts';
import { type HttpPeer, startPosternPeer, startRoutes } from './http-peers.ts';
import { forgetPeak, peakBytes, residentBytes } from './proc.ts';
import type { Scenario } from './scenario.ts';
import { interleave, type Series } from './series.ts';

const ROW_BYTES = 1_000;
const FULL_BYTES = 500_000_000;
const QUICK_BYTES = 100_000_000;
const SLOW_BYTES_PER_SECOND = 60_000_000;
const SETTLE_MS = 500;
const TIMEOUT_MS = 300_000;
/** A new process each and many seconds; and the most memory that is taken is no matter of luck. */
const ROUNDS_MAX = 1;

export const HTTP_LARGE: Scenario = {
  name: 'http-large',
  about: `POST /api/query: 500 MB (100 MB with --quick), read at once or at ${SLOW_BYTES_PER_SECOND / 1e6} MB/s; memory that a new process takes for it`,
  async run(bench) {
    const names = (['Fastify + pg', 'Postern'] as const).filter((name) => isAskedFor(bench, name)).map((name) => ({ name }));
    const rounds = Math.min(bench.options.rounds, ROUNDS_MAX);
    const series: Series[] = [];
    for (const [label, bytesPerSecond] of [
      ['fast reader', Number.POSITIVE_INFINITY],
      ['slow reader', SLOW_BYTES_PER_SECOND],
    ] as const) {
      const labels = { scenario: 'http-large', case: label, rounds, signal: bench.signal };
      series.push(...(await interleave(labels, names, ({ name }) => download(name, bytesPerSecond, bench))));
    }
    return series;
  },
};

async function download(name: 'Fastify + pg' | 'Postern', bytesPerSecond: number, bench: Bench): Promise<Record<string, number>> {
  const [peer] = name === 'Postern' ? [await startPosternPeer(bench)] : await startRoutes(bench, [name]);
  if (peer === undefined) return {};
  try {
    // What is loaded and opened for the first request, whatever its size, is not this one's.
    await read(peer, 1_000, Number.POSITIVE_INFINITY, bench.signal);
    await delay(SETTLE_MS);
    const { pid } = peer.child;
    const before = await residentBytes(pid);
    await forgetPeak(pid);
    const seconds = await read(peer, bench.options.quick ? QUICK_BYTES : FULL_BYTES, bytesPerSecond, bench.signal);
    return { 'MB above idle': ((await peakBytes(pid)) - before) / 1e6, s: seconds };
  } finally {
    await peer.child.end();
  }
}

/** @returns the seconds it took. @throws Error when it was refused, or less came than was to come */
async function read({ name, url, key }: HttpPeer, bytes: number, bytesPerSecond: number, signal: AbortSignal): Promise<number> {
  const rows = Math.ceil(bytes / ROW_BYTES / 1.025);
  const sql = `SELECT n, repeat('x', ${ROW_BYTES}) AS body FROM generate_series(1, ${rows}) AS n`;
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${key}` };
  const startedAt = performance.now();
  const sent = request(`${url}/api/query`, { method: 'POST', headers, signal });
  sent.end(JSON.stringify({ sql, timeoutMs: TIMEOUT_MS }));
  const [reply] = await once(sent, 'response');
  let got = 0;
  for await (const chunk of reply) {
    got += chunk.length;
    const aheadMs = (1000 * got) / bytesPerSecond - (performance.now() - startedAt);
    if (aheadMs > 1) await delay(aheadMs);
  }
  if (reply.statusCode !== 200 || got < rows * ROW_BYTES) throw new Error(`${name} answered ${reply.statusCode} with ${got} bytes`);
  return (performance.now() - startedAt) / 1000;
}
