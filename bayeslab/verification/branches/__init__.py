"""Operations that are not analytic in a site: where it changes their branch, and whether the log joint jumps there."""
