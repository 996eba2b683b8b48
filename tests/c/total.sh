# Shows what the test programs print and closes with their sum; a program that died is a failure.
awk '
/^[0-9]+ passed, [0-9]+ failed$/ { passed += $1; failed += $3; programs++; next }
/: exit status [0-9]+$/ { died++ }
{ print }
END {
    if (failed == 0) failed = died
    print passed + 0 " passed, " failed + 0 " failed"
    exit failed > 0 || programs == 0
}'
