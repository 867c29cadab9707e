#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_commits.sh [RANGE] - refuses a commit whose subject is not "area: what
# changes", of at most 72 characters and without a full stop.  Checks the last commit,
# or each of RANGE; without git or history it checks nothing.
set -u
git rev-parse HEAD >/dev/null 2>&1 || exit 0
bad=$(git log --no-merges --format='%h %s' "${1:--1}" |
	awk '{ subject = substr($0, index($0, " ") + 1) }
	     subject !~ /^[a-z0-9_.\/, -]+: [^ ]/ || subject ~ /\.$/ ||
	     length(subject) > 72')
[ -z "$bad" ] && exit 0
echo "$bad"
exit 1
