/** Where there is no wrk: posts the same over and over for some seconds, as told by JSON in its argument; says how many a second. */
import { once } from 'node:events';
import { Agent, request } from 'node:http';

const { url, key, body, connections, seconds } = JSON.parse(process.argv[2] ?? '');
const agent = new Agent({ keepAlive: true, maxSockets: connections });
const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body), authorization: `Bearer ${key}` };

let answered = 0;
const startedAt = performance.now();
await Promise.all(
  Array.from({ length: connections }, async () => {
    while (performance.now() < startedAt + 1000 * seconds) {
      await post();
      answered++;
    }
  }),
);
process.stdout.write(String(answered / ((performance.now() - startedAt) / 1000)));
agent.destroy();

async function post(): Promise<void> {
  const sent = request(url, { method: 'POST', agent, headers });
  sent.end(body);
  const [reply] = await once(sent, 'response');
  if (reply.statusCode !== 200) throw new Error(`${url} answered ${reply.statusCode}`);
  reply.resume();
  await once(reply, 'end');
}
