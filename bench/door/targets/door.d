/* What the arguments of the probes of sdt.c are: says to nopal that the first of str is a string. */
provider door {
	probe u2(uint64_t a, uint64_t b);
	probe str(char *s, uint64_t a);
};
