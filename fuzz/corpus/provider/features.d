#pragma D attributes Evolving/Evolving/Common provider app provider
typedef struct { int a; } conn_t; typedef enum { A } how_t;
# 7 "other.d" 2
/** Doc. */
provider app {
  /** Text.
   * @param key the key
   * @length key n
   * @enum how 0=A -1=B 0x10=C
   * @pair done */
  probe go(const char * const key, int n, how_t how) : (conn_info_t *c, string s);
  probe done(void (*f)(int), struct T **x, unsigned long long, char b[16])
  // line
  probe q__start(void); probe q__end();
};
BEGIN { printf("}"); } io:::start /pid == 1/ { }
provider two { probe x(bool class); }
