import { defineConfig } from 'drizzle-kit';

const { DRIZZLE_SCHEMA = '', DRIZZLE_OUT = '', DRIZZLE_URL = '' } = process.env;

export default defineConfig({
  dialect: 'postgresql',
  schema: DRIZZLE_SCHEMA.split(','),
  out: DRIZZLE_OUT,
  dbCredentials: { url: DRIZZLE_URL },
  schemaFilter: ['public', 'stock'],
});
