import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** What goes wrong between the browser and the service. */
export type Fault =
  | { readonly kind: 'answer'; readonly status: number; readonly headers?: Readonly<Record<string, string>>; readonly body?: string }
  /** The reply ends after so many bytes, without the end that HTTP asks for. */
  | { readonly kind: 'break'; readonly afterBytes: number }
  /** The connection ends before there is a reply. */
  | { readonly kind: 'refuse' };

/** A reverse proxy in front of the service, as operators have one, on a port of its own. */
export interface Gateway {
  /** Where the service is found behind it. */
  readonly origin: string;
  /** Asked for each request; undefined passes it on. */
  fault: (method: string, path: string) => Fault | undefined;
  /** Ends all connections where they stand. */
  breakOff(): void;
  close(): Promise<void>;
}

/** @param prefix the path below which the service is, such as `/db` */
export async function openGateway(target: string, prefix = ''): Promise<Gateway> {
  const server: Server = createServer((incoming, outgoing) => {
    const path = pathBelow(prefix, incoming.url ?? '');
    if (path === undefined) return void outgoing.writeHead(404).end();
    const fault = gateway.fault(incoming.method ?? '', path);
    if (fault?.kind === 'refuse') return void incoming.socket.destroy();
    if (fault?.kind === 'answer') return void outgoing.writeHead(fault.status, fault.headers).end(fault.body);
    return pass(incoming, outgoing, { target, path, breakAfterBytes: fault?.afterBytes });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const gateway: Gateway = {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}${prefix}`,
    fault: () => undefined,
    breakOff: () => server.closeAllConnections(),
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
  return gateway;
}

function pathBelow(prefix: string, url: string): string | undefined {
  return url.startsWith(`${prefix}/`) ? url.slice(prefix.length) : undefined;
}

interface Passing {
  readonly target: string;
  readonly path: string;
  readonly breakAfterBytes: number | undefined;
}

function pass(incoming: IncomingMessage, outgoing: ServerResponse, { target, path, breakAfterBytes }: Passing): void {
  // The reply's bytes are counted, so they come uncompressed.
  const { 'accept-encoding': _, ...headers } = incoming.headers;
  const onward = request(new URL(path, target), { method: incoming.method, headers });
  onward.on('response', (reply) => {
    outgoing.writeHead(reply.statusCode ?? 502, reply.headers);
    if (breakAfterBytes === undefined) return void reply.pipe(outgoing);
    let passed = 0;
    reply.on('data', (bytes: Buffer) => {
      outgoing.write(bytes.subarray(0, breakAfterBytes - passed), () => passed >= breakAfterBytes && incoming.socket.destroy());
      passed += bytes.length;
    });
    reply.on('end', () => outgoing.write('', () => incoming.socket.destroy()));
  });
  onward.on('error', () => incoming.socket.destroy());
  // Whoever gives up a request gives it up at the service too.
  outgoing.on('close', () => onward.destroy());
  incoming.pipe(onward);
}
