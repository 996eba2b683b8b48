#include "suites.h"
#include "test.h"

int main(void) {
    suite_hash();
    suite_map();
    suite_count();
    suite_static();
    suite_legacy();
    suite_table();
    suite_draft();
    suite_drafter();
    return test_summary();
}
