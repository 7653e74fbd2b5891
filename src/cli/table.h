/* cli/table.h: the one printer of tables: Markdown, so that a report can be pasted. */
#ifndef KVANT_CLI_TABLE_H
#define KVANT_CLI_TABLE_H

#include <stdio.h>

/* The columns of a table, as text: titles separated by '|'.  '>' before a title aligns right, "@20" behind it pads its
 * cells to 20 characters: "model@30|>size@10|test". */
void table_head(FILE *f, const char *columns);
/* One row: cells separated by '|' in what the format makes. */
void table_row(FILE *f, const char *columns, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
