-- $1 the topics' last journal number, $2 their highest fence, $3 who, $4 why
SELECT lease.jump($1, $2, $3, $4)
