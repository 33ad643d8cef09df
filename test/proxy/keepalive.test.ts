import { readFile, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { afterAll, describe, it } from 'vitest';
import { CERTIFICATE, CERTIFICATE_KEY } from '../support/certificate.ts';
import { eventually } from '../support/eventually.ts';
import { makeScratch } from '../support/scratch.ts';
import { startTestService } from '../support/service.ts';
import { directTls, requestTls } from '../support/tls.ts';

const ESTABLISHED = '01';
const KEEPALIVE_TIMER = '02';

describe.runIf(process.platform === 'linux')('a client that stays', async () => {
  const scratch = await makeScratch();
  const files = { POSTERN_TLS_CERT: join(scratch.path, 'tls.crt'), POSTERN_TLS_KEY: join(scratch.path, 'tls.key') };
  await writeFile(files.POSTERN_TLS_CERT, CERTIFICATE);
  await writeFile(files.POSTERN_TLS_KEY, CERTIFICATE_KEY);
  const postern = await startTestService(files);
  afterAll(async () => {
    await postern.close();
    await scratch.remove();
  });

  it('is asked by the system whether it is still there, also under TLS', async () => {
    const plain = connect(postern.wirePort, '127.0.0.1');
    const early = await requestTls(postern.wirePort);
    const direct = await directTls(postern.wirePort, { ALPNProtocols: ['postgresql'] });
    await eventually('all are connected', async () => (await timers(postern.wirePort)).length === 3);
    await eventually('keepalive is on', async () => (await timers(postern.wirePort)).every((timer) => timer === KEEPALIVE_TIMER));
    for (const socket of [plain, early.secure, direct.secure]) socket.destroy();
  });
});

/** What the system waits for on the server's side of each connection. @see https://docs.kernel.org/networking/proc_net_tcp.html */
async function timers(port: number): Promise<string[]> {
  const local = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const rows = (await readFile('/proc/net/tcp', 'latin1')).split('\n').map((row) => row.trim().split(/\s+/));
  return rows
    .filter(([, address, , state]) => address?.endsWith(local) && state === ESTABLISHED)
    .map(([, , , , , timer = '']) => timer.slice(0, 2));
}
