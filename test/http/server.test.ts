import { once } from 'node:events';
import type { RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it } from 'vitest';
import { createServer, type HttpServer, type ServerDeadlines } from '../../http/server.ts';
import { talk } from './door.ts';

/** Longer than any test may take. */
const PATIENT: ServerDeadlines = {
  headersTimeoutMs: 600_000,
  requestTimeoutMs: 600_000,
  keepAliveTimeoutMs: 600_000,
  sendTimeoutMs: 600_000,
};
const GET = 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n';

async function listening(deadlines: Partial<ServerDeadlines>, handler: RequestListener): Promise<HttpServer & { readonly port: number }> {
  const door = createServer(handler, { ...PATIENT, ...deadlines });
  door.server.listen(0, '127.0.0.1');
  await once(door.server, 'listening');
  return { ...door, port: (door.server.address() as AddressInfo).port };
}

async function closed({ server, closeAll }: HttpServer): Promise<void> {
  closeAll();
  server.close();
  await once(server, 'close');
}

it('a client that takes nothing of its reply is dropped', async () => {
  const size = 64 * 1_024 * 1_024;
  const door = await listening({ sendTimeoutMs: 1_000 }, (_request, reply) => reply.end(Buffer.alloc(size)));
  const { socket, reply } = talk(door.port);
  socket.pause();
  socket.write(GET);
  const [request] = await once(door.server, 'request');
  await once(request.socket, 'close');
  socket.resume();
  expect((await reply).length).toBeLessThan(size);
  await closed(door);
});

it('a client that waits for a slow reply is not', async () => {
  const door = await listening({ sendTimeoutMs: 1_000 }, (_request, reply) => setTimeout(() => reply.end('at last'), 1_500));
  const { socket, reply } = talk(door.port, GET.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'));
  expect(await reply).toContain('at last');
  socket.destroy();
  await closed(door);
});

it('what is no HTTP ends the connection with the replies that are due, and without a word of its own', async () => {
  const door = await listening({}, (_request, reply) => {
    reply.write('the first half');
    setTimeout(() => reply.end(', the second'), 100);
  });
  const { socket, reply } = talk(door.port, GET);
  await once(socket, 'data');
  socket.write('nonsense\r\n\r\n');
  socket.write('and more of it\r\n\r\n');
  expect(await reply).toMatch(/the first half\r\n.*, the second\r\n0\r\n\r\n$/s);
  await closed(door);
});

it('a client that has sent nonsense and goes is not waited for', async () => {
  const door = await listening({}, (_request, reply) => reply.write('the first half'));
  const { socket, reply } = talk(door.port, GET);
  await once(socket, 'data');
  socket.write('nonsense\r\n\r\n');
  socket.end();
  expect(await reply).not.toContain('400');
  await closed(door);
});

it('requests that wait for their turn are not read without end', async () => {
  let answered = 0;
  let goOn = () => {};
  const first = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  const door = await listening({}, async (_request, reply) => {
    await first;
    answered += 1;
    reply.end(String(answered));
  });
  const { socket, reply } = talk(door.port);
  const count = 50_000;
  socket.write(GET.repeat(count - 1) + GET.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'));
  const [request] = await once(door.server, 'request');
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect(request.socket.bytesRead).toBeLessThan(500_000);
  goOn();
  expect(await reply).toMatch(new RegExp(`\r\n${count}\r\n0\r\n\r\n$|\r\n${count}$`));
  await closed(door);
});
