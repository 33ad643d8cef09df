import { createHash, createHmac } from 'node:crypto';

/** As long as the name of an organization's schema. */
const PREFIX_CHARACTERS = 16;

/** What the prefixes of channels are made from. It is kept in the shared database, where only the platform role can read it. */
export function channelSecret(secret: string): Buffer {
  return createHmac('sha256', secret).update('postern channels').digest();
}

/**
 * Stands before the names of an organization's channels in the shared database: a secret, so that nobody else can speak on
 * them. The server makes the same for whoever has logged in (`postern.server_channel`).
 */
export function channelsOf(channels: Buffer, role: string): string {
  return createHash('sha256').update(channels).update(role).digest('hex').slice(0, PREFIX_CHARACTERS);
}

/** As it was up to edition 5, when it was written into functions, where everybody in the shared database could read it. */
export function formerChannelsOf(secret: string, role: string): string {
  return createHmac('sha256', secret).update(`channels of ${role}`).digest('hex').slice(0, PREFIX_CHARACTERS);
}
