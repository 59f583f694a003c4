// nodep: the library that ordinary.c needs. Linked under a file name other than its soname, so that
// the loader never finds it.
int kiln_nodep_answer(void);
int kiln_nodep_answer(void) {
    return 1;
}
