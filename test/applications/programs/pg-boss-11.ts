import PgBoss from 'pg-boss-11';
import { obey, variable } from './commands.ts';

const schema = variable('PLACEMENT') === 'schema' ? variable('SCHEMA') : 'pgboss';
const boss = new PgBoss({ connectionString: variable('DATABASE_URL'), schema });
boss.on('error', (error) => console.error(error));
await boss.start();
await boss.createQueue('notes');
// One that the next version finds, and has to work on.
const jobs: string[] = [];

await obey({
  async add(note) {
    const id = await boss.send('notes', { note });
    if (id === null) throw new Error('the job was refused');
    jobs.push(id);
  },
  async list() {
    const found = await Promise.all(jobs.map((id) => boss.getJobById<{ note: string }>('notes', id)));
    return found.flatMap((job) => job?.data.note ?? []);
  },
  end: () => boss.stop({ graceful: false }),
});
