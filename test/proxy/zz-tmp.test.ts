import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, test } from 'vitest';
import { hold } from '../conversations/runner.ts';
import { readScript } from '../conversations/script.ts';
import type { Target } from '../conversations/target.ts';
import { startTestService } from '../support/service.ts';

const folder = fileURLToPath(new URL('../conversations/scripts', import.meta.url));
const conversations = readdirSync(folder)
  .filter((file) => file.endsWith('.conv'))
  .flatMap((file) => readScript(join(folder, file)));
for (const size of ['1', '3']) {
  const s = await startTestService({ POSTERN_BACKENDS_PER_TENANT: size });
  const o = await s.signUp();
  afterAll(() => s.close());
  const target = {
    host: '127.0.0.1',
    port: s.wirePort,
    user: o.id,
    database: o.id,
    password: o.apiKey,
    version: 180000,
    backends: Number(size),
    pooled: true,
  } as unknown as Target;
  describe(`postern ${size}`, () => {
    for (const conversation of conversations) {
      if (conversation.version > 180004 || conversation.backends > Number(size)) continue;
      test(`${conversation.file}: ${conversation.title}`, () => hold(conversation, target), 8000);
    }
  });
}
