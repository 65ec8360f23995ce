/* Runs recorded transactions with SQLite's own interface: the limit of what any program could do with them.
 *
 *   replay_sqlite DATABASE TRACE WARM GROUP
 *
 * TRACE is written by benchmarks/kit/sqlite_trace.py: the forms of statements with the number of their parameters, then
 * the transactions. The first WARM of them are not timed; GROUP of them share one commit.
 */
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct form {
  sqlite3_stmt *statement;
  uint32_t parameters;
};

static const unsigned char *cursor;
static sqlite3 *database;

static void fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, database ? sqlite3_errmsg(database) : "");
  exit(1);
}

static double now(void) {
  struct timespec moment;
  clock_gettime(CLOCK_MONOTONIC, &moment);
  return moment.tv_sec + moment.tv_nsec * 1e-9;
}

static uint32_t number(void) {
  uint32_t value;
  memcpy(&value, cursor, 4);
  cursor += 4;
  return value;
}

static const char *text(uint32_t *length) {
  *length = number();
  const char *start = (const char *)cursor;
  cursor += *length + 1;
  return start;
}

static void run(const char *statement) {
  if (sqlite3_exec(database, statement, 0, 0, 0) != SQLITE_OK) fail(statement);
}

static struct form *read_forms(void) {
  uint32_t count = number();
  struct form *forms = calloc(count, sizeof *forms);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t length;
    const char *statement = text(&length);
    if (sqlite3_prepare_v3(database, statement, (int)length, SQLITE_PREPARE_PERSISTENT, &forms[i].statement, 0))
      fail(statement);
    forms[i].parameters = number();
  }
  return forms;
}

static void bind(sqlite3_stmt *statement, int place) {
  unsigned char kind = *cursor++;
  if (kind == 'n') {
    sqlite3_bind_null(statement, place);
  } else if (kind == 'i') {
    int64_t value;
    memcpy(&value, cursor, 8);
    cursor += 8;
    sqlite3_bind_int64(statement, place, value);
  } else if (kind == 'f') {
    double value;
    memcpy(&value, cursor, 8);
    cursor += 8;
    sqlite3_bind_double(statement, place, value);
  } else {
    uint32_t length = number();
    if (kind == 't') sqlite3_bind_text(statement, place, (const char *)cursor, (int)length, SQLITE_STATIC);
    if (kind == 'b') sqlite3_bind_blob(statement, place, cursor, (int)length, SQLITE_STATIC);
    cursor += length;
  }
}

static void run_transaction(struct form *forms) {
  uint32_t statements = number();
  for (uint32_t i = 0; i < statements; i++) {
    struct form *form = &forms[number()];
    int state;
    for (uint32_t j = 0; j < form->parameters; j++) bind(form->statement, (int)j + 1);
    while ((state = sqlite3_step(form->statement)) == SQLITE_ROW)
      for (int column = 0; column < sqlite3_column_count(form->statement); column++)
        sqlite3_column_bytes(form->statement, column);
    if (state != SQLITE_DONE) fail("step");
    sqlite3_reset(form->statement);
  }
}

int main(int count, char **arguments) {
  if (count != 5) return 2;
  FILE *file = fopen(arguments[2], "rb");
  if (!file) return 2;
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  rewind(file);
  unsigned char *trace = malloc(size);
  if (fread(trace, 1, size, file) != (size_t)size) return 2;
  cursor = trace;
  if (sqlite3_open_v2(arguments[1], &database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, 0)) fail("open");
  run("PRAGMA journal_mode = wal");
  run("PRAGMA synchronous = full");
  run("PRAGMA foreign_keys = 1");
  sqlite3_db_config(database, SQLITE_DBCONFIG_ENABLE_QPSG, 1, (int *)0);
  struct form *forms = read_forms();
  uint32_t transactions = number(), warm = atoi(arguments[3]), group = atoi(arguments[4]);
  double begin = now();
  for (uint32_t i = 0; i < transactions; i++) {
    if (i == warm) begin = now();
    if (i % group == 0) run("BEGIN IMMEDIATE");
    run_transaction(forms);
    if (i % group == group - 1 || i == transactions - 1) run("COMMIT");
  }
  printf("{\"rate\": %.1f, \"sqlite\": \"%s\"}\n", (transactions - warm) / (now() - begin), sqlite3_libversion());
  return 0;
}
