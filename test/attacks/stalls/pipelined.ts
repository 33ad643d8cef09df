import type { StallAttack } from './stall-attack.ts';

const HEALTH = Buffer.from('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n');
const UPGRADE = Buffer.from(
  'GET /v2 HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n',
);
/** Masked, of no bytes. */
const PING = Buffer.from([0x89, 0x80, 0, 0, 0, 0]);

/** By many connections without a key, and much on each before the first reply. */
export const PIPELINED_ATTACKS: readonly StallAttack[] = [
  {
    what: '100 connections with 1,400 requests each',
    placement: 'database',
    run: (attacker) => attacker.onConnections(100, times(1_400, HEALTH)),
    answer: '200',
  },
  {
    what: '100 WebSockets with 10,000 pings each',
    placement: 'database',
    run: (attacker) => attacker.onConnections(100, times(10_000, PING), UPGRADE),
    answer: '101',
  },
];

function times(count: number, bytes: Buffer): Buffer {
  return Buffer.concat(Array.from({ length: count }, () => bytes));
}
