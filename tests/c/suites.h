/* One suite a module. */
#ifndef SUITES_H
#define SUITES_H

void suite_hash(void);
void suite_map(void);
void suite_count(void);
void suite_static(void);
void suite_legacy(void);
void suite_table(void);
void suite_draft(void);
void suite_drafter(void);

#endif
