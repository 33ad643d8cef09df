import { randomBytes } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, inject, test } from 'vitest';
import { Recording } from '../conversations/record.ts';
import { hold } from '../conversations/runner.ts';
import { type Conversation, readScript } from '../conversations/script.ts';
import { createPlainTarget, type PlainTarget, type Target } from '../conversations/target.ts';
import { inThisPart } from '../support/parts.ts';
import { hasPostgres15, startPostgres15 } from '../support/postgres15.ts';
import { PLACEMENT, startTestService, type TestService } from '../support/service.ts';

const folder = fileURLToPath(new URL('../conversations/scripts', import.meta.url));
const conversations = readdirSync(folder).flatMap((file) => readScript(join(folder, file)));

// RECORD=1 writes what the server answers in place of lines `A< ?`.
const recording = process.env.RECORD ? new Recording(folder) : undefined;
afterAll(() => recording?.save());

function holdAll(those: readonly Conversation[], target: () => Target): void {
  for (const conversation of those) {
    test(`${conversation.file}: ${conversation.title}`, () => hold(conversation, target(), recording?.record));
  }
}

const servers = [
  { version: 18, start: async () => ({ ...inject('cluster'), stop: async () => {} }) },
  ...(hasPostgres15 ? [{ version: 15, start: startPostgres15 }] : []),
];

describe.each(inThisPart(servers, () => false))('PostgreSQL $version', ({ version, start }) => {
  let server: Awaited<ReturnType<typeof start>>;
  let target: PlainTarget;
  beforeAll(async () => {
    server = await start();
    target = await createPlainTarget(server, `conversations_${randomBytes(4).toString('hex')}`);
  });
  afterAll(async () => {
    await target.drop();
    await server.stop();
  });

  holdAll(
    conversations.filter((conversation) => conversation.version <= version),
    () => target,
  );
});

const posterns = [
  { backends: 3, placement: PLACEMENT },
  { backends: 1, placement: 'database' },
] as const;

describe.each(inThisPart(posterns, ({ backends }) => backends > 1))(
  'Postern with $backends backends, placement $placement',
  ({ backends, placement }) => {
    let service: TestService;
    let target: Target;
    beforeAll(async () => {
      service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: String(backends), POSTERN_PLACEMENT: placement });
      const { id, apiKey } = await service.signUp();
      target = {
        kind: 'postern',
        host: '127.0.0.1',
        port: service.wirePort,
        user: id,
        database: id,
        password: apiKey,
        version: 18,
        placement,
        backends,
      };
    });
    afterAll(() => service.close());

    holdAll(
      conversations.filter((conversation) => {
        return conversation.version <= 18 && conversation.backends <= backends && (conversation.placement ?? placement) === placement;
      }),
      () => target,
    );
  },
);
