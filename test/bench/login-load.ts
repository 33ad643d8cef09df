/**
 * Logs in and leaves, over and over, for some seconds: a process of its own, started by logins.ts with what it is to do as JSON
 * in its argument. Says how often it was let in.
 */
import { WireClients } from './wire-login.ts';

const TERMINATE = Buffer.from([0x58, 0, 0, 0, 4]);

const { login, clients, seconds } = JSON.parse(process.argv[2] ?? '');
const doorway = new WireClients(login);
// The proof's slow part is computed before the time runs.
(await doorway.open()).end(TERMINATE);

let logins = 0;
const startedAt = performance.now();
const over = startedAt + seconds * 1000;
await Promise.all(
  Array.from({ length: clients }, async () => {
    while (performance.now() < over) {
      const socket = await doorway.open();
      logins++;
      // Read to its end, or the socket is never closed.
      socket.resume().end(TERMINATE);
    }
  }),
);
process.stdout.write(JSON.stringify({ logins, seconds: (performance.now() - startedAt) / 1000 }));
