import { logIn } from '../conversations/login.ts';
import { WireClient } from '../conversations/wire-client.ts';
import type { Doors, TestOrganization } from './doors.ts';

/** A connection that is logged in and speaks whatever bytes it is given. */
export async function openSession({ wirePort }: Doors, { id, apiKey }: TestOrganization): Promise<WireClient> {
  const client = await WireClient.open('127.0.0.1', wirePort);
  await logIn(client, { user: id, database: id, password: apiKey }, '3.0', new Map());
  return client;
}

/** Query as bytes. */
export function queryMessage(sql: string): Buffer {
  const message = Buffer.alloc(6 + Buffer.byteLength(sql));
  message.write('Q');
  message.writeInt32BE(message.length - 1, 1);
  message.write(sql, 5);
  return message;
}
