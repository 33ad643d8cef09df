import { once } from 'node:events';
import { createServer, connect } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { ClientConnection } from '../../proxy/connection.ts';
import { TlsFiles } from '../../proxy/tls.ts';
const files = TlsFiles.open({ POSTERN_TLS_CERT: '/dev/shm/tls-oracle/rsa.crt', POSTERN_TLS_KEY: '/dev/shm/tls-oracle/rsa.key' });
it('x', async () => {
  const log: string[] = [];
  const t0 = performance.now();
  const say = (s: string) => log.push(`${(performance.now() - t0).toFixed(0)} ${s}`);
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    for (const e of ['end', 'close', 'error'] as const) socket.on(e, (x: unknown) => say(`plain ${e} ${x}`));
    const c = new ClientConnection(socket);
    void (async () => {
      try {
        await c.upgrade(files!.identity);
        say('secure');
        for (const e of ['end', 'close', 'error'] as const) c.socket.on(e, (x: unknown) => say(`secure ${e} ${x}`));
        await c.read(4);
      } catch (e) {
        say(`threw ${e}`);
        c.destroy();
      }
    })();
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const port = (server.address() as { port: number }).port;
  for (const [name, f] of Object.entries({
    destroyAfterSecure: async () => { const s = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false, ALPNProtocols: ['postgresql'] }); await once(s, 'secureConnect'); s.destroy(); },
    endAfterSecure: async () => { const s = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false, ALPNProtocols: ['postgresql'] }); await once(s, 'secureConnect'); s.end(); },
    finBeforeHandshake: async () => { const s = connect(port, '127.0.0.1'); await once(s, 'connect'); await sleep(20); s.destroy(); },
    finMidHandshake: async () => { const s = connect(port, '127.0.0.1'); await once(s, 'connect'); s.write(Buffer.from([0x16,3,1])); await sleep(20); s.destroy(); },
    rstMid: async () => { const s = connect(port, '127.0.0.1'); await once(s, 'connect'); s.write(Buffer.from([0x16,3,1])); await sleep(20); s.resetAndDestroy(); },
    garbage: async () => { const p = connect(port, '127.0.0.1'); const s = connectTls({ socket: p, rejectUnauthorized: false }); await once(s, 'secureConnect'); await sleep(20); p.write('this is no TLS record, and so there can be no further one'); s.on('error',()=>{}); p.on('error',()=>{}); },
    garbageNoWait: async () => { const p = connect(port, '127.0.0.1'); const s = connectTls({ socket: p, rejectUnauthorized: false }); await once(s, 'secureConnect'); p.write('this is no TLS record, and so there can be no further one'); s.on('error',()=>{}); p.on('error',()=>{}); },
    finNoNotify: async () => { const p = connect(port, '127.0.0.1'); const s = connectTls({ socket: p, rejectUnauthorized: false }); await once(s, 'secureConnect'); await sleep(20); p.end(); s.on('error',()=>{}); p.on('error',()=>{}); },
  })) {
    say(`== ${name}`);
    await f();
    await sleep(400);
  }
  console.log(log.join('\n'));
  expect(1).toBe(1);
});
