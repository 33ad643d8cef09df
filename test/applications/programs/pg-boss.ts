import { setTimeout as delay } from 'node:timers/promises';
import { PgBoss } from 'pg-boss';
import { obey, variable } from './commands.ts';

// In the schema placement there is one schema; elsewhere pg-boss makes its own.
const schema = variable('PLACEMENT') === 'schema' ? variable('SCHEMA') : 'pgboss';
const boss = new PgBoss({ connectionString: variable('DATABASE_URL'), schema, bamIntervalSeconds: 10, superviseIntervalSeconds: 1 });
boss.on('error', (error) => console.error('pg-boss:', error));
await boss.start();
await boss.createQueue('notes');
await boss.work('notes', { pollingIntervalSeconds: 0.5 }, async () => {});
await boss.supervise('notes');

await obey({
  async add(note) {
    const id = await boss.send('notes', { note });
    if (id === null) throw new Error('the job was refused');
  },
  /** When all jobs are done, and all indexes that it builds in the background. */
  async list() {
    for (;;) {
      const jobs = await boss.findJobs<{ note: string }>('notes');
      const builds = await boss.getBamEntries();
      const failed = builds.find(({ status }) => status === 'failed');
      if (failed !== undefined) throw new Error(`a build has failed: ${JSON.stringify(failed)}`);
      if (jobs.every(({ state }) => state === 'completed') && builds.every(({ status }) => status === 'completed'))
        return jobs.map(({ data }) => data.note);
      await delay(100);
    }
  },
  end: () => boss.stop({ graceful: false }),
});
