/** Owns the help of `tollgate audit`, apart from its code so that showing it loads nothing; refuses lines wider than a terminal. */

/** What `tollgate audit --help` prints. */
export const AUDIT_USAGE = `Usage: tollgate audit COMMAND [OPTIONS]

Reads the audit log.

Commands:
  list                      the newest calls, one a line
  show ID                   all records of one call, in full; ID as list
                            shows it
  tail                      the newest calls, then what comes
  stats                     counts and times by tool, outcome, principal
  export                    all records, oldest first
  verify                    proves that nothing was changed
  archive                   moves old files of the log into a folder

Filters, for list, tail, stats and export:
  --since TIME              ISO time, or 30m, 2h, 7d ago
  --until TIME              the same
  --principal ID, --server NAME, --tool NAME, --outcome WORD, --code CODE,
  --run ID, --session ID, --type TYPE, --id ID
                            only records with this value; --type finds
                            what is no call too
  --text TEXT               only records that hold this text
  --all                     what is no call too; verify: every chain

Options:
  -c, --config FILE         the configuration whose log is read
                            (default: "tollgate.yaml")
  --folder DIR              a copy of the log instead
  --json                    print data as JSON
  --limit N                 how many (list: 50, tail: 10)
  --unknown                 list: calls that may have run, because their
                            process died before the outcome
  --format jsonl|csv        export: the form
  --expect-head HASH        verify: a head that must still be there; repeatable
  --archive DIR             verify: an archive, together with the log;
                            repeatable
  --key FILE                verify: the audit.key of the state folder, for
                            checkpoints, where --folder names a copy
  --before TIME             archive: ISO time, or 90d ago; newer files stay
  --to DIR                  archive: the folder to move to

Examples:
  $ tollgate audit list --outcome deny --since 2h
  $ tollgate audit show 0b6ef0a2-0000-4000-8000-000000000000
  $ tollgate audit export --format csv > calls.csv
  $ tollgate audit archive --before 90d --to /var/archive/tollgate
`;
