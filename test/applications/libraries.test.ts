import { expect, it } from 'vitest';
import { describeApplication, startScript } from './application.ts';

describeApplication('TypeORM 1.1', { start: (place) => startScript(place, 'typeorm.ts') });

describeApplication('MikroORM 7', { start: (place) => startScript(place, 'mikro-orm.ts') });

describeApplication('pg-boss 12', { start: (place) => startScript(place, 'pg-boss.ts') });

describeApplication('pg-boss 12 where pg-boss 11 was', {
  start: (place, times) => startScript(place, times === 1 ? 'pg-boss-11.ts' : 'pg-boss.ts'),
  more(place) {
    it('has built the indexes of the new version in the background', async () => {
      const schema = place().schema === 'public' ? 'pgboss' : place().schema;
      const builds = await place().query(`SELECT DISTINCT status FROM ${schema}.bam`);
      expect(builds).toEqual([{ status: 'completed' }]);
    });
  },
});
