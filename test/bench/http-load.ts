/**
 * Where there is no wrk, or what is asked may be refused: asks the same over and over for some seconds, as told by JSON in its
 * argument; says how many were answered a second.
 */
import { once } from 'node:events';
import { Agent, request } from 'node:http';

const { url, key, body, connections, seconds, method = 'POST', isRefused = false } = JSON.parse(process.argv[2] ?? '');
const agent = new Agent({ keepAlive: true, maxSockets: connections });
const headers = {
  ...(body === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
  ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
};

let answered = 0;
const startedAt = performance.now();
await Promise.all(
  Array.from({ length: connections }, async () => {
    while (performance.now() < startedAt + 1000 * seconds) {
      await ask();
      answered++;
    }
  }),
);
process.stdout.write(String(answered / ((performance.now() - startedAt) / 1000)));
agent.destroy();

async function ask(): Promise<void> {
  try {
    await askOnce();
  } catch (error) {
    // Who is refused too often finds the connection closed.
    if (!isRefused) throw error;
  }
}

async function askOnce(): Promise<void> {
  const sent = request(url, { method, agent, headers });
  sent.end(body);
  const [reply] = await once(sent, 'response');
  if (reply.statusCode !== 200 && !isRefused) throw new Error(`${url} answered ${reply.statusCode}`);
  reply.resume();
  await once(reply, 'end');
}
