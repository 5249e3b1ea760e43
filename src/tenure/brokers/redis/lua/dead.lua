-- dead: a page of the dead list.  ARGV: the last id of the page before (or empty), how many.  Answers ids.

return call('ZRANGEBYLEX', DEAD, ARGV[1] == '' and '-' or '(' .. ARGV[1], '+', 'LIMIT', 0, ARGV[2])
