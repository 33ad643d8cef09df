/** A statement as a client's library sent it, and its parameters. */
type Recorded = readonly [sql: string, ...values: unknown[]];

/** What libraries send when they are told to use the schema `public`, in the order in which they do. */
export const RECORDED: Record<string, readonly Recorded[]> = {
  Prisma: [
    [
      `-- CreateSchema
CREATE SCHEMA IF NOT EXISTS "public";

-- CreateEnum
CREATE TYPE "public"."Role" AS ENUM ('public', 'admin');

-- CreateTable
CREATE TABLE "public"."User" (
    "id" SERIAL NOT NULL,
    "email" TEXT NOT NULL,
    "role" "public"."Role" NOT NULL DEFAULT 'public',
    "public" BOOLEAN NOT NULL DEFAULT true,
    "data" JSONB,

    CONSTRAINT "User_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "public"."Post" (
    "id" TEXT NOT NULL,
    "title" TEXT NOT NULL,
    "authorId" INTEGER NOT NULL,

    CONSTRAINT "Post_pkey" PRIMARY KEY ("id")
);

-- CreateIndex
CREATE UNIQUE INDEX "User_email_key" ON "public"."User"("email");

-- AddForeignKey
ALTER TABLE "public"."Post" ADD CONSTRAINT "Post_authorId_fkey" FOREIGN KEY ("authorId") REFERENCES "public"."User"("id") ON DELETE RESTRICT ON UPDATE CASCADE;
`,
    ],
    [
      `INSERT INTO "public"."User" ("email","role","public","data") VALUES ($1,CAST($2::text AS "public"."Role"),$3,$4) RETURNING "public"."User"."id"`,
      'a@public.x',
      'public',
      true,
      '{"public": "public.x"}',
    ],
    [
      `INSERT INTO "public"."Post" ("id","title","authorId") VALUES ($1,$2,$3), ($4,$5,$6) ON CONFLICT DO NOTHING`,
      'p1',
      'public.x',
      1,
      'p2',
      'b',
      1,
    ],
    [
      `SELECT "public"."User"."id", "public"."User"."email", "public"."User"."role"::text, "public"."User"."public", "public"."User"."data", COALESCE("aggr_selection_0_Post"."_aggr_count_posts", 0) AS "_aggr_count_posts" FROM "public"."User" LEFT JOIN (SELECT "public"."Post"."authorId", COUNT(*) AS "_aggr_count_posts" FROM "public"."Post" WHERE 1=1 GROUP BY "public"."Post"."authorId") AS "aggr_selection_0_Post" ON ("public"."User"."id" = "aggr_selection_0_Post"."authorId") WHERE ("public"."User"."role" = CAST($1::text AS "public"."Role") AND "public"."User"."public" = $2 AND ("public"."User"."id") IN (SELECT "t1"."authorId" FROM "public"."Post" AS "t1" WHERE ("t1"."title"::text LIKE $3 AND "t1"."authorId" IS NOT NULL))) OFFSET $4`,
      'public',
      true,
      '%x%',
      0,
    ],
    [
      `UPDATE "public"."User" SET "public" = $1 WHERE ("public"."User"."email" = $2 AND 1=1) RETURNING "public"."User"."id", "public"."User"."email", "public"."User"."role"::text, "public"."User"."public", "public"."User"."data"`,
      false,
      'a@public.x',
    ],
    [
      `SELECT COUNT(*) AS "_count$_all", "public"."Post"."title" FROM "public"."Post" WHERE 1=1 GROUP BY "public"."Post"."title" ORDER BY "public"."Post"."title" OFFSET $1`,
      0,
    ],
    [`DELETE FROM "public"."Post" WHERE ("public"."Post"."id" = $1 AND 1=1) RETURNING "public"."Post"."id"`, 'p1'],
    [`SELECT COUNT(*) AS "_count$_all" FROM (SELECT "public"."User"."id" FROM "public"."User" WHERE 1=1 OFFSET $1) AS "sub"`, 0],
  ],
  TypeORM: [
    [`CREATE TYPE "public"."t_user_role_enum" AS ENUM('public', 'admin')`],
    [
      `CREATE TABLE "public"."t_user" ("id" uuid NOT NULL DEFAULT gen_random_uuid(), "role" "public"."t_user_role_enum" NOT NULL DEFAULT 'public', "public" boolean NOT NULL DEFAULT true, "n" SERIAL NOT NULL, CONSTRAINT "PK_6a6708d647ac5da9ab8271cfede" PRIMARY KEY ("id"))`,
    ],
    [
      `CREATE TABLE "public"."t_post" ("id" SERIAL NOT NULL, "title" character varying NOT NULL, "tags" text, "userId" uuid, CONSTRAINT "PK_ac634d7cdf7c5c9596a0e333182" PRIMARY KEY ("id")); COMMENT ON COLUMN "public"."t_post"."title" IS 'public.title'`,
    ],
    [
      `ALTER TABLE "public"."t_post" ADD CONSTRAINT "FK_9256d9750054600e95eb68cc4d3" FOREIGN KEY ("userId") REFERENCES "public"."t_user"("id") ON DELETE CASCADE ON UPDATE NO ACTION`,
    ],
    [
      `INSERT INTO "public"."t_user"("id", "role", "public") VALUES ($1, $2, DEFAULT) RETURNING "id", "role", "public", "n"`,
      ID(1),
      'admin',
    ],
    [
      `INSERT INTO "public"."t_post"("title", "tags", "userId") VALUES ($1, DEFAULT, $2), ($3, DEFAULT, $4) RETURNING "id"`,
      'public.x',
      ID(1),
      'b',
      ID(1),
    ],
    [
      `SELECT DISTINCT "distinctAlias"."TPost_id" AS "ids_TPost_id", "distinctAlias"."TPost_id" FROM (SELECT "TPost"."id" AS "TPost_id", "TPost"."title" AS "TPost_title", "TPost__TPost_user"."public" AS "TPost__TPost_user_public" FROM "public"."t_post" "TPost" LEFT JOIN "public"."t_user" "TPost__TPost_user" ON "TPost__TPost_user"."id"="TPost"."userId" WHERE (((("TPost__TPost_user"."role" = $1))))) "distinctAlias" ORDER BY "distinctAlias"."TPost_id" ASC, "TPost_id" ASC LIMIT 5`,
      'admin',
    ],
    [
      `SELECT "public"."id" AS "public_id", "public"."title" AS "public_title", "u"."public" AS "u_public" FROM "public"."t_post" "public" LEFT JOIN "public"."t_user" "u" ON "u"."id"="public"."userId" WHERE "public"."title" = $1`,
      'b',
    ],
    [`DELETE FROM "public"."t_post"`],
  ],
  Knex: [
    [`set search_path to "public"`],
    [`create type "public"."k_mood" as enum ('public', 'private')`],
    [
      `create table "public"."k_users" ("id" serial primary key, "email" varchar(255), "mood" "public"."k_mood", "public" boolean default '0')`,
    ],
    [`alter table "public"."k_users" add constraint "k_users_email_unique" unique ("email")`],
    [`create table "public"."k_posts" ("id" serial primary key, "user_id" integer, "data" jsonb)`],
    [
      `alter table "public"."k_posts" add constraint "k_posts_user_id_foreign" foreign key ("user_id") references "public"."k_users" ("id") on delete cascade`,
    ],
    [`insert into "public"."k_users" ("email", "mood", "public") values ($1, $2, $3) returning *`, 'a', 'public', true],
    [`update "public"."k_users" set "email" = $1 where "public" = $2 returning "id", "public"`, 'b', true],
    [`insert into "public"."k_posts" ("data", "user_id") values ($1, $2)`, '{"public":"public.x"}', 1],
    [`select "k_users".*, "k_posts"."data" from "public"."k_posts" inner join "public"."k_users" on "k_users"."id" = "k_posts"."user_id"`],
    [`create index "k_ix" on "public"."k_users" ("email")`],
    [`drop table "public"."k_posts"`],
    [
      `select column_name from information_schema.columns where table_name = $1 and table_schema = current_schema() order by column_name`,
      'k_users',
    ],
  ],
  Kysely: [
    [`create type "public"."y_mood" as enum ('public', 'b')`],
    [`create table "public"."y_users" ("id" serial primary key, "public" public.y_mood default 'public')`],
    [`create index "y_ix" on "public"."y_users" ("public")`],
    [`insert into "public"."y_users" ("public") values ($1), ($2) returning *`, 'public', 'b'],
    [
      `select "public"."y_users".*, "public"."y_users"."public" as "public2" from "public"."y_users" where "public"."y_users"."public" = $1`,
      'public',
    ],
    [`update "public"."y_users" set "public" = $1 where "id" = $2`, 'b', 1],
    [`create view "public"."y_v" as select * from "public"."y_users"`],
    [
      `create table if not exists "public"."kysely_migration" ("name" varchar(255) not null primary key, "timestamp" varchar(255) not null)`,
    ],
    [`insert into "public"."kysely_migration" ("name", "timestamp") values ($1, $2)`, 'public', 'x'],
  ],
  SQLAlchemy: [
    [`CREATE TYPE public.sa_mood AS ENUM ('public', 'b')`],
    [
      `\nCREATE TABLE public.sa_user (\n\tid SERIAL NOT NULL, \n\tmood public.sa_mood, \n\tpublic BOOLEAN, \n\ttags VARCHAR[], \n\tPRIMARY KEY (id)\n)\n\n`,
    ],
    [`CREATE SEQUENCE public.sa_seq`],
    [
      `\nCREATE TABLE public.sa_post (\n\tid BIGINT GENERATED BY DEFAULT AS IDENTITY, \n\tuid INTEGER, \n\tseq INTEGER, \n\tPRIMARY KEY (id), \n\tFOREIGN KEY(uid) REFERENCES public.sa_user (id)\n)\n\n`,
    ],
    [
      `INSERT INTO public.sa_user (mood, public, tags) VALUES ($1, $2, $3::VARCHAR[]) RETURNING public.sa_user.id`,
      'public',
      true,
      ['public.x'],
    ],
    [
      `INSERT INTO public.sa_post (uid, seq) SELECT p0::INTEGER, p1::INTEGER FROM (VALUES (1, nextval('public.sa_seq'), 0), (1, nextval('public.sa_seq'), 1)) AS imp_sen(p0, p1, sen_counter) ORDER BY sen_counter RETURNING public.sa_post.id, public.sa_post.id AS id__1`,
    ],
    [
      `SELECT public.sa_user.id, public.sa_user.mood, public.sa_user.public, public.sa_user.tags \nFROM public.sa_user \nWHERE public.sa_user.public AND public.sa_user.mood = $1`,
      'public',
    ],
    [`SELECT public.sa_post.id, public.sa_post.uid \nFROM public.sa_post \nWHERE $1::INTEGER = public.sa_post.uid`, 1],
    [`UPDATE public.sa_user SET public=$1`, false],
    [`SELECT public.id, public.public \nFROM public.sa_user AS public`],
  ],
  Django: [
    [`CREATE TABLE "public"."dj_t" ("id" bigint NOT NULL PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY, "public" boolean NOT NULL)`],
    [`INSERT INTO "public"."dj_t" ("public") VALUES (true) RETURNING "public"."dj_t"."id"`],
    [`SELECT COUNT(*) AS "__count" FROM "public"."dj_t" WHERE "public"."dj_t"."public"`],
    [`SELECT setval(pg_get_serial_sequence('"public"."dj_t"','id'), coalesce(max("id"), 1), max("id") IS NOT null) FROM "public"."dj_t"`],
    [`ALTER TABLE "public"."dj_t" ADD COLUMN "name" varchar(20) DEFAULT 'public' NOT NULL`],
    [`SET CONSTRAINTS ALL IMMEDIATE`],
  ],
  Sequelize: [
    [`DO 'BEGIN CREATE TYPE "public"."enum_SUsers_mood" AS ENUM(''public'', ''b''); EXCEPTION WHEN duplicate_object THEN null; END';`],
    [
      `CREATE TABLE IF NOT EXISTS "public"."SUsers" ("id"   SERIAL , "name" VARCHAR(255), "mood" "public"."enum_SUsers_mood" DEFAULT 'public', "public" BOOLEAN, "data" JSONB, PRIMARY KEY ("id"));`,
    ],
    [
      `CREATE TABLE IF NOT EXISTS "public"."SPosts" ("id"   SERIAL , "t" VARCHAR(255), "SUserId" INTEGER REFERENCES "public"."SUsers" ("id") ON DELETE SET NULL ON UPDATE CASCADE, PRIMARY KEY ("id"));`,
    ],
    [
      `INSERT INTO "public"."SUsers" ("id","name","mood","public","data") VALUES (DEFAULT,$1,$2,$3,$4) RETURNING "id","name","mood","public","data";`,
      'public.x',
      'public',
      true,
      '{"public":1}',
    ],
    [`INSERT INTO "public"."SPosts" ("id","t","SUserId") VALUES (DEFAULT,$1,$2) RETURNING "id","t","SUserId";`, 'x', 1],
    [
      `SELECT "SUser"."id", "SUser"."public", "SPosts"."id" AS "SPosts.id", "SPosts"."t" AS "SPosts.t" FROM "public"."SUsers" AS "SUser" LEFT OUTER JOIN "public"."SPosts" AS "SPosts" ON "SUser"."id" = "SPosts"."SUserId" WHERE "SUser"."public" = true;`,
    ],
    [`UPDATE "public"."SUsers" SET "public"=$1 WHERE "name" = $2 RETURNING "id","name","mood","public","data"`, false, 'public.x'],
    [`ALTER TABLE "public"."SUsers" ADD COLUMN "x" INTEGER;`],
    [`CREATE INDEX "s_users_x" ON "public"."SUsers" ("x")`],
    [`DELETE FROM "public"."SPosts"`],
  ],
};

function ID(number: number): string {
  return `00000000-0000-4000-8000-${String(number).padStart(12, '0')}`;
}
