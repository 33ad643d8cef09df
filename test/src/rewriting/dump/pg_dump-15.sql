--
-- PostgreSQL database dump
--

-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: german; Type: COLLATION; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE COLLATION public.german (provider = libc, locale = 'C');

ALTER COLLATION public.german OWNER TO org_k3v9x0q2m7t1;

--
-- Name: address; Type: TYPE; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE TYPE public.address AS (
	street text,
	city text
);

ALTER TYPE public.address OWNER TO org_k3v9x0q2m7t1;

--
-- Name: email; Type: DOMAIN; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE DOMAIN public.email AS text
	CONSTRAINT email_check CHECK ((VALUE ~ '^[^@]+@[^@]+$'::text));

ALTER DOMAIN public.email OWNER TO org_k3v9x0q2m7t1;

--
-- Name: mood; Type: TYPE; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE TYPE public.mood AS ENUM (
    'sad',
    'ok',
    'public'
);

ALTER TYPE public.mood OWNER TO org_k3v9x0q2m7t1;

--
-- Name: public_name; Type: DOMAIN; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE DOMAIN public.public_name AS character varying(40) NOT NULL DEFAULT 'public.name'::character varying;

ALTER DOMAIN public.public_name OWNER TO org_k3v9x0q2m7t1;

--
-- Name: CAST (public.address AS text); Type: CAST; Schema: -; Owner: -
--

CREATE CAST (public.address AS text) WITH INOUT AS ASSIGNMENT;

--
-- Name: add_moods(integer, public.mood); Type: FUNCTION; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE FUNCTION public.add_moods(a integer, b public.mood) RETURNS integer
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT a + array_position(enum_range(NULL::public.mood), b) $$;

ALTER FUNCTION public.add_moods(a integer, b public.mood) OWNER TO org_k3v9x0q2m7t1;

--
-- Name: audit_row(); Type: FUNCTION; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE FUNCTION public.audit_row() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $_$
DECLARE
  target public.audit%ROWTYPE;
BEGIN
  -- public.audit is written with EXECUTE, as old code does
  EXECUTE 'INSERT INTO public.audit (relation, operation, row_data) VALUES ($1::regclass::text, $2, $3)'
    USING TG_RELID, TG_OP, to_jsonb(COALESCE(NEW, OLD)) || '{"note": "public.audit"}';
  EXECUTE format('UPDATE public.%I SET public = NOT public WHERE false', 'teams');
  PERFORM pg_notify('changes_' || TG_TABLE_NAME, 'public.users');
  SELECT * INTO target FROM public.audit LIMIT 1;
  RETURN COALESCE(NEW, OLD);
END
$_$;

ALTER FUNCTION public.audit_row() OWNER TO org_k3v9x0q2m7t1;

--
-- Name: next_ticket(); Type: FUNCTION; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE FUNCTION public.next_ticket() RETURNS bigint
    LANGUAGE sql
    AS $$ SELECT nextval('public.ticket_numbers') $$;

ALTER FUNCTION public.next_ticket() OWNER TO org_k3v9x0q2m7t1;

--
-- Name: rename_team(integer, text); Type: PROCEDURE; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE PROCEDURE public.rename_team(IN team integer, IN new_name text)
    LANGUAGE plpgsql
    AS $$BEGIN UPDATE public.teams SET name = new_name || ' public.x' WHERE id = team; END$$;

ALTER PROCEDURE public.rename_team(IN team integer, IN new_name text) OWNER TO org_k3v9x0q2m7t1;

--
-- Name: same_city(public.address, public.address); Type: FUNCTION; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE FUNCTION public.same_city(a public.address, b public.address) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT a.city = b.city $$;

ALTER FUNCTION public.same_city(a public.address, b public.address) OWNER TO org_k3v9x0q2m7t1;

--
-- Name: slug(text); Type: FUNCTION; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE FUNCTION public.slug(title text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT
    AS $$SELECT lower(regexp_replace(title, '[^a-zA-Z]+', '-', 'g'))$$;

ALTER FUNCTION public.slug(title text) OWNER TO org_k3v9x0q2m7t1;

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: teams; Type: TABLE; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE TABLE public.teams (
    id integer NOT NULL,
    name public.public_name,
    public boolean DEFAULT true,
    slug text GENERATED ALWAYS AS (public.slug((name)::text)) STORED
);

ALTER TABLE public.teams OWNER TO org_k3v9x0q2m7t1;

--
-- Name: TABLE teams; Type: COMMENT; Schema: public; Owner: org_k3v9x0q2m7t1
--

COMMENT ON TABLE public.teams IS 'see public.users; it''s public';

--
-- Name: COLUMN teams.public; Type: COMMENT; Schema: public; Owner: org_k3v9x0q2m7t1
--

COMMENT ON COLUMN public.teams.public IS 'public';

--
-- Name: ticket_numbers; Type: SEQUENCE; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE SEQUENCE public.ticket_numbers
    START WITH 100
    INCREMENT BY 5
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER TABLE public.ticket_numbers OWNER TO org_k3v9x0q2m7t1;

--
-- Name: users; Type: TABLE; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE TABLE public.users (
    id bigint NOT NULL,
    team_id integer NOT NULL,
    email public.email NOT NULL,
    mood public.mood DEFAULT 'public'::public.mood,
    moods public.mood[] DEFAULT '{ok,public}'::public.mood[],
    home public.address,
    ticket bigint DEFAULT public.next_ticket(),
    visits bigint DEFAULT nextval('public.ticket_numbers'::regclass),
    name text COLLATE public.german,
    settings jsonb DEFAULT '{"public": "public.users"}'::jsonb,
    CONSTRAINT users_email_length CHECK ((length((email)::text) < 100))
);

ALTER TABLE public.users OWNER TO org_k3v9x0q2m7t1;

--
-- Name: team_of(public.users); Type: FUNCTION; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE FUNCTION public.team_of(who public.users) RETURNS public.teams
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT t.id,
     t.name,
     t.public,
     t.slug
    FROM public.teams t
   WHERE (t.id = (team_of.who).team_id);
END;

ALTER FUNCTION public.team_of(who public.users) OWNER TO org_k3v9x0q2m7t1;

--
-- Name: total_mood(public.mood); Type: AGGREGATE; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE AGGREGATE public.total_mood(public.mood) (
    SFUNC = public.add_moods,
    STYPE = integer,
    INITCOND = '0'
);

ALTER AGGREGATE public.total_mood(public.mood) OWNER TO org_k3v9x0q2m7t1;

--
-- Name: ===; Type: OPERATOR; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE OPERATOR public.=== (
    FUNCTION = public.same_city,
    LEFTARG = public.address,
    RIGHTARG = public.address,
    COMMUTATOR = OPERATOR(public.===)
);

ALTER OPERATOR public.=== (public.address, public.address) OWNER TO org_k3v9x0q2m7t1;

--
-- Name: audit; Type: TABLE; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE TABLE public.audit (
    at timestamp with time zone DEFAULT now(),
    relation text,
    operation text,
    row_data jsonb
);

ALTER TABLE public.audit OWNER TO org_k3v9x0q2m7t1;

--
-- Name: events; Type: TABLE; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE TABLE public.events (
    id integer NOT NULL,
    payload json
);

ALTER TABLE public.events OWNER TO org_k3v9x0q2m7t1;

--
-- Name: events_id_seq; Type: SEQUENCE; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE SEQUENCE public.events_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER TABLE public.events_id_seq OWNER TO org_k3v9x0q2m7t1;

--
-- Name: events_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: org_k3v9x0q2m7t1
--

ALTER SEQUENCE public.events_id_seq OWNED BY public.events.id;

--
-- Name: logins; Type: TABLE; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE TABLE public.logins (
    ip inet
)
INHERITS (public.events);

ALTER TABLE public.logins OWNER TO org_k3v9x0q2m7t1;

--
-- Name: measures; Type: TABLE; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE TABLE public.measures (
    taken date NOT NULL,
    sensor integer,
    value numeric
)
PARTITION BY RANGE (taken);

ALTER TABLE public.measures OWNER TO org_k3v9x0q2m7t1;

--
-- Name: measures_2024; Type: TABLE; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE TABLE public.measures_2024 (
    taken date NOT NULL,
    sensor integer,
    value numeric
);

ALTER TABLE public.measures_2024 OWNER TO org_k3v9x0q2m7t1;

--
-- Name: measures_rest; Type: TABLE; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE TABLE public.measures_rest (
    taken date NOT NULL,
    sensor integer,
    value numeric
);

ALTER TABLE public.measures_rest OWNER TO org_k3v9x0q2m7t1;

--
-- Name: moods; Type: MATERIALIZED VIEW; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE MATERIALIZED VIEW public.moods AS
 SELECT users.mood,
    count(*) AS count,
    public.total_mood(users.mood) AS total
   FROM public.users
  GROUP BY users.mood
  WITH NO DATA;

ALTER TABLE public.moods OWNER TO org_k3v9x0q2m7t1;

--
-- Name: neighbours; Type: VIEW; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE VIEW public.neighbours AS
 SELECT a.id AS a,
    b.id AS b
   FROM (public.users a
     JOIN public.users b ON (((a.home OPERATOR(public.===) b.home) AND (a.id < b.id))));

ALTER TABLE public.neighbours OWNER TO org_k3v9x0q2m7t1;

--
-- Name: public; Type: TABLE; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE TABLE public.public (
    public text NOT NULL,
    "Public Key" text DEFAULT 'public.public'::text
);

ALTER TABLE public.public OWNER TO org_k3v9x0q2m7t1;

--
-- Name: team_sizes; Type: VIEW; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE VIEW public.team_sizes AS
SELECT
    NULL::integer AS id,
    NULL::public.public_name AS name,
    NULL::bigint AS size,
    NULL::boolean AS public,
    NULL::regclass AS source;

ALTER TABLE public.team_sizes OWNER TO org_k3v9x0q2m7t1;

--
-- Name: teams_id_seq; Type: SEQUENCE; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE SEQUENCE public.teams_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER TABLE public.teams_id_seq OWNER TO org_k3v9x0q2m7t1;

--
-- Name: teams_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: org_k3v9x0q2m7t1
--

ALTER SEQUENCE public.teams_id_seq OWNED BY public.teams.id;

--
-- Name: users_id_seq; Type: SEQUENCE; Schema: public; Owner: org_k3v9x0q2m7t1
--

ALTER TABLE public.users ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.users_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: measures_2024; Type: TABLE ATTACH; Schema: public; Owner: org_k3v9x0q2m7t1
--

ALTER TABLE ONLY public.measures ATTACH PARTITION public.measures_2024 FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');

--
-- Name: measures_rest; Type: TABLE ATTACH; Schema: public; Owner: org_k3v9x0q2m7t1
--

ALTER TABLE ONLY public.measures ATTACH PARTITION public.measures_rest DEFAULT;

--
-- Name: events id; Type: DEFAULT; Schema: public; Owner: org_k3v9x0q2m7t1
--

ALTER TABLE ONLY public.events ALTER COLUMN id SET DEFAULT nextval('public.events_id_seq'::regclass);

--
-- Name: logins id; Type: DEFAULT; Schema: public; Owner: org_k3v9x0q2m7t1
--

ALTER TABLE ONLY public.logins ALTER COLUMN id SET DEFAULT nextval('public.events_id_seq'::regclass);

--
-- Name: teams id; Type: DEFAULT; Schema: public; Owner: org_k3v9x0q2m7t1
--

ALTER TABLE ONLY public.teams ALTER COLUMN id SET DEFAULT nextval('public.teams_id_seq'::regclass);

--
-- Data for Name: audit; Type: TABLE DATA; Schema: public; Owner: org_k3v9x0q2m7t1
--

INSERT INTO public.audit VALUES ('2026-11-21 09:09:42.872034+00', 'users', 'INSERT', '{"id": 1, "home": {"city": "Bonn", "street": "A St"}, "mood": "public", "name": "public.users", "note": "public.audit", "email": "a@public.x", "moods": ["ok", "public"], "ticket": 100, "visits": 105, "team_id": 1, "settings": {"public": "public.users"}}');
INSERT INTO public.audit VALUES ('2026-11-21 09:09:42.872034+00', 'users', 'INSERT', '{"id": 2, "home": {"city": "Bonn", "street": "B St"}, "mood": "public", "name": "two\nlines", "note": "public.audit", "email": "b@public.x", "moods": ["ok", "public"], "ticket": 110, "visits": 115, "team_id": 1, "settings": {"public": "public.users"}}');
INSERT INTO public.audit VALUES ('2026-11-21 09:09:42.872034+00', 'users', 'INSERT', '{"id": 3, "home": null, "mood": "public", "name": null, "note": "public.audit", "email": "c@public.x", "moods": ["ok", "public"], "ticket": 120, "visits": 125, "team_id": 2, "settings": {"public": "public.users"}}');

--
-- Data for Name: events; Type: TABLE DATA; Schema: public; Owner: org_k3v9x0q2m7t1
--

--
-- Data for Name: logins; Type: TABLE DATA; Schema: public; Owner: org_k3v9x0q2m7t1
--

INSERT INTO public.logins VALUES (1, '{"public": 1}', '10.0.0.1');

--
-- Data for Name: measures_2024; Type: TABLE DATA; Schema: public; Owner: org_k3v9x0q2m7t1
--

INSERT INTO public.measures_2024 VALUES ('2024-05-01', 1, 1.5);

--
-- Data for Name: measures_rest; Type: TABLE DATA; Schema: public; Owner: org_k3v9x0q2m7t1
--

INSERT INTO public.measures_rest VALUES ('2023-05-01', 2, 2.5);

--
-- Data for Name: public; Type: TABLE DATA; Schema: public; Owner: org_k3v9x0q2m7t1
--

INSERT INTO public.public VALUES ('public', 'public.public');

--
-- Data for Name: teams; Type: TABLE DATA; Schema: public; Owner: org_k3v9x0q2m7t1
--

INSERT INTO public.teams VALUES (1, 'Public Affairs', true, DEFAULT);
INSERT INTO public.teams VALUES (2, 'public.teams', true, DEFAULT);
INSERT INTO public.teams VALUES (3, 'it''s \public.x', true, DEFAULT);

--
-- Data for Name: users; Type: TABLE DATA; Schema: public; Owner: org_k3v9x0q2m7t1
--

INSERT INTO public.users OVERRIDING SYSTEM VALUE VALUES (1, 1, 'a@public.x', 'public', '{ok,public}', '("A St",Bonn)', 100, 105, 'public.users', '{"public": "public.users"}');
INSERT INTO public.users OVERRIDING SYSTEM VALUE VALUES (2, 1, 'b@public.x', 'public', '{ok,public}', '("B St",Bonn)', 110, 115, 'two
lines', '{"public": "public.users"}');
INSERT INTO public.users OVERRIDING SYSTEM VALUE VALUES (3, 2, 'c@public.x', 'public', '{ok,public}', NULL, 120, 125, NULL, '{"public": "public.users"}');

--
-- Name: events_id_seq; Type: SEQUENCE SET; Schema: public; Owner: org_k3v9x0q2m7t1
--

SELECT pg_catalog.setval('public.events_id_seq', 1, true);

--
-- Name: teams_id_seq; Type: SEQUENCE SET; Schema: public; Owner: org_k3v9x0q2m7t1
--

SELECT pg_catalog.setval('public.teams_id_seq', 3, true);

--
-- Name: ticket_numbers; Type: SEQUENCE SET; Schema: public; Owner: org_k3v9x0q2m7t1
--

SELECT pg_catalog.setval('public.ticket_numbers', 125, true);

--
-- Name: users_id_seq; Type: SEQUENCE SET; Schema: public; Owner: org_k3v9x0q2m7t1
--

SELECT pg_catalog.setval('public.users_id_seq', 3, true);

--
-- Name: public public_pkey; Type: CONSTRAINT; Schema: public; Owner: org_k3v9x0q2m7t1
--

ALTER TABLE ONLY public.public
    ADD CONSTRAINT public_pkey PRIMARY KEY (public);

--
-- Name: teams teams_name_key; Type: CONSTRAINT; Schema: public; Owner: org_k3v9x0q2m7t1
--

ALTER TABLE ONLY public.teams
    ADD CONSTRAINT teams_name_key UNIQUE (name);

--
-- Name: teams teams_pkey; Type: CONSTRAINT; Schema: public; Owner: org_k3v9x0q2m7t1
--

ALTER TABLE ONLY public.teams
    ADD CONSTRAINT teams_pkey PRIMARY KEY (id);

--
-- Name: users users_pkey; Type: CONSTRAINT; Schema: public; Owner: org_k3v9x0q2m7t1
--

ALTER TABLE ONLY public.users
    ADD CONSTRAINT users_pkey PRIMARY KEY (id);

--
-- Name: measures_sensor; Type: INDEX; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE INDEX measures_sensor ON ONLY public.measures USING btree (sensor);

--
-- Name: measures_2024_sensor_idx; Type: INDEX; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE INDEX measures_2024_sensor_idx ON public.measures_2024 USING btree (sensor);

--
-- Name: measures_rest_sensor_idx; Type: INDEX; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE INDEX measures_rest_sensor_idx ON public.measures_rest USING btree (sensor);

--
-- Name: moods_mood; Type: INDEX; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE UNIQUE INDEX moods_mood ON public.moods USING btree (mood);

--
-- Name: users_email; Type: INDEX; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE UNIQUE INDEX users_email ON public.users USING btree (lower((email)::text));

--
-- Name: users_public; Type: INDEX; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE INDEX users_public ON public.users USING btree (team_id) WHERE (mood = 'public'::public.mood);

--
-- Name: measures_2024_sensor_idx; Type: INDEX ATTACH; Schema: public; Owner: org_k3v9x0q2m7t1
--

ALTER INDEX public.measures_sensor ATTACH PARTITION public.measures_2024_sensor_idx;

--
-- Name: measures_rest_sensor_idx; Type: INDEX ATTACH; Schema: public; Owner: org_k3v9x0q2m7t1
--

ALTER INDEX public.measures_sensor ATTACH PARTITION public.measures_rest_sensor_idx;

--
-- Name: team_statistics; Type: STATISTICS; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE STATISTICS public.team_statistics ON team_id, mood FROM public.users;

ALTER STATISTICS public.team_statistics OWNER TO org_k3v9x0q2m7t1;

--
-- Name: team_sizes _RETURN; Type: RULE; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE OR REPLACE VIEW public.team_sizes AS
 SELECT public.id,
    public.name,
    count(users.id) AS size,
    public.public,
    'public.teams'::regclass AS source
   FROM (public.teams public
     LEFT JOIN public.users ON ((users.team_id = public.id)))
  GROUP BY public.id;

--
-- Name: public keep_public; Type: RULE; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE RULE keep_public AS
    ON DELETE TO public.public DO INSTEAD
 NOTIFY kept;

--
-- Name: users users_audit; Type: TRIGGER; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE TRIGGER users_audit AFTER INSERT OR DELETE OR UPDATE ON public.users FOR EACH ROW EXECUTE FUNCTION public.audit_row('public.users');

--
-- Name: users users_team_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: org_k3v9x0q2m7t1
--

ALTER TABLE ONLY public.users
    ADD CONSTRAINT users_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

--
-- Name: teams everyone; Type: POLICY; Schema: public; Owner: org_k3v9x0q2m7t1
--

CREATE POLICY everyone ON public.teams USING ((public OR (public.slug('public.x'::text) IS NULL)));

--
-- Name: teams; Type: ROW SECURITY; Schema: public; Owner: org_k3v9x0q2m7t1
--

ALTER TABLE public.teams ENABLE ROW LEVEL SECURITY;

--
-- Name: FUNCTION next_ticket(); Type: ACL; Schema: public; Owner: org_k3v9x0q2m7t1
--

REVOKE ALL ON FUNCTION public.next_ticket() FROM PUBLIC;

--
-- Name: TABLE teams; Type: ACL; Schema: public; Owner: org_k3v9x0q2m7t1
--

GRANT SELECT ON TABLE public.teams TO PUBLIC;

--
-- Name: TABLE team_sizes; Type: ACL; Schema: public; Owner: org_k3v9x0q2m7t1
--

GRANT SELECT ON TABLE public.team_sizes TO PUBLIC;

--
-- Name: DEFAULT PRIVILEGES FOR TABLES; Type: DEFAULT ACL; Schema: public; Owner: org_k3v9x0q2m7t1
--

ALTER DEFAULT PRIVILEGES FOR ROLE org_k3v9x0q2m7t1 IN SCHEMA public GRANT SELECT ON TABLES  TO PUBLIC;

--
-- Name: moods; Type: MATERIALIZED VIEW DATA; Schema: public; Owner: org_k3v9x0q2m7t1
--

REFRESH MATERIALIZED VIEW public.moods;

--
-- PostgreSQL database dump complete
--

