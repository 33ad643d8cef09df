import { z } from 'zod';
import * as neon from '../neon/schemas.ts';
import * as replies from '../responses/reply-schemas.ts';
import { advice, adviceReply } from '../routes/database/advice.ts';
import { queryStatistic, queryStatisticsReply } from '../routes/database/query-statistics.ts';
import { deletedQuery, savedQueries, savedQuery, saveQueryRequest } from '../routes/database/saved-query-schemas.ts';
import { schemaReply, table } from '../routes/database/schema-reply.ts';
import * as sessions from '../routes/database/session-schemas.ts';
import { usageInterval, usageReply } from '../routes/database/usage.ts';
import * as requests from '../routes/request-schemas.ts';

/*
 * The names of schemas in the OpenAPI document, which are the names of types in generated clients. Where one schema has another in
 * it, the document refers to it by its name.
 */

export const REQUESTS = registryOf({
  SignUpRequest: requests.signupRequest,
  OrganizationChanges: requests.organizationChanges,
  OrganizationDeletion: requests.organizationDeletion,
  KeyRotationRequest: requests.rotateKeyRequest,
  ConsoleSignIn: requests.consoleSignInRequest,
  KeyRequest: requests.createKeyRequest,
  KeyChange: requests.updateKeyRequest,
  CloneRequest: requests.createCloneRequest,
  QueryRequest: requests.queryRequest,
  TransactionRequest: requests.transactionRequest,
  MigrationRequest: requests.migrationRequest,
  QueryToSave: saveQueryRequest,
  AuditSearch: requests.auditSearch,
  NeonQuery: neon.neonQuery,
  NeonBatch: neon.neonBatch,
  NeonRequest: neon.neonRequest,
});

export const REPLIES = registryOf({
  SignedUp: replies.signupReply,
  Caller: replies.meReply,
  Organization: replies.organizationReply,
  DeletedOrganization: replies.organizationDeletionReply,
  ApiKey: replies.key,
  ApiKeyList: replies.keysReply,
  CreatedKey: replies.createdKeyReply,
  RevokedKey: replies.revokedKeyReply,
  Clone: replies.clone,
  CloneList: replies.clonesReply,
  CreatedClone: replies.createdCloneReply,
  Connection: replies.connection,
  RotatedKey: replies.rotateKeyReply,
  QueryResult: replies.queryReply,
  Field: replies.field,
  Warning: replies.warning,
  QueryLine: replies.queryLine,
  TransactionResult: replies.transactionReply,
  Migration: replies.migration,
  MigrationResult: replies.migrationReply,
  MigrationWarning: replies.migrationWarning,
  MigrationList: replies.migrationsReply,
  Schema: schemaReply,
  Table: table,
  SavedQuery: savedQuery,
  SavedQueryList: savedQueries,
  DeletedQuery: deletedQuery,
  Session: sessions.session,
  SessionPin: sessions.pin,
  SessionList: sessions.sessionsReply,
  CanceledSession: sessions.canceledReply,
  EndedSession: sessions.endedReply,
  AuditEntry: replies.auditEntry,
  AuditPage: replies.auditReply,
  AuditVerification: replies.auditVerifyReply,
  QueryStatistic: queryStatistic,
  QueryStatistics: queryStatisticsReply,
  UsageInterval: usageInterval,
  Usage: usageReply,
  Advice: advice,
  AdviceList: adviceReply,
  Health: replies.healthReply,
  NeonResult: neon.neonResult,
  NeonReply: neon.neonReply,
  NeonError: neon.neonError,
  Problem: replies.problem,
});

function registryOf(schemas: Readonly<Record<string, z.ZodType>>): z.core.$ZodRegistry<{ id: string }> {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(schemas)) registry.add(schema, { id });
  return registry;
}
