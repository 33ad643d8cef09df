import { once } from 'node:events';
import { connect } from 'node:net';
import { expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { startTestService } from '../support/service.ts';

/** Longer than the test may take. */
const PATIENT_MS = 600_000;

/** A StartupMessage (protocol 3.0) of `user` `org_nobody00000`, and no more. */
const STARTUP = Buffer.from('\0\0\0\x1e\0\x03\0\0user\0org_nobody00000\0\0', 'latin1');

it('who has come and does not log in keeps nobody from stopping', async () => {
  const patience = { POSTERN_SHUTDOWN_TIMEOUT_MS: String(PATIENT_MS), POSTERN_LOGIN_TIMEOUT_MS: String(PATIENT_MS) };
  const service = await startTestService(patience);
  const [mute, halfway] = [connect(service.wirePort, '127.0.0.1'), connect(service.wirePort, '127.0.0.1')];
  const overHttp = new WebSocket(`${service.httpUrl.replace('http', 'ws')}/v2`);
  await Promise.all([once(mute, 'connect'), once(overHttp, 'open')]);
  halfway.write(STARTUP);
  // Asked for the proof that it knows the key.
  await once(halfway, 'data');
  const ends = Promise.all([mute, halfway, overHttp].map((client) => once(client, 'close')));
  await service.close();
  await ends;
  const gone = service.observations.filter(({ name }) => name === 'wire.disconnected');
  expect(gone).toHaveLength(3);
});
