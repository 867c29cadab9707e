#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_commits.sh [RANGE] - the subject of the last commit, or of each of a range,
# is "area: what changes": at most 72 characters, no full stop at the end.  Without
# git or history it checks nothing.
set -u
git rev-parse HEAD >/dev/null 2>&1 || exit 0
bad=$(git log --no-merges --format='%h %s' "${1:--1}" |
	awk '{ subject = substr($0, index($0, " ") + 1) }
	     subject !~ /^[a-z0-9_.\/, -]+: [^ ]/ || subject ~ /\.$/ ||
	     length(subject) > 72')
[ -z "$bad" ] && exit 0
echo "$bad"
exit 1
