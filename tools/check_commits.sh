#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_commits.sh [RANGE] - refuses a commit whose subject is not "area: what
# changes", of at most 72 characters, without a full stop and without a semicolon.
# Checks every commit of RANGE; without an argument, those since the last tag, or since
# the commit below if there is no tag.  A shallow history checks what it has; without
# git or history the script checks nothing.
set -u
# The last commit whose subject breaks the rule.
base=3b9fa10

git rev-parse HEAD >/dev/null 2>&1 || exit 0
if [ $# -gt 0 ]; then
	range=$1
else
	since=$(git describe --tags --abbrev=0 2>/dev/null) || since=$base
	range=$since..HEAD
	git merge-base --is-ancestor "$since" HEAD 2>/dev/null || range=-1
fi
bad=$(git log --no-merges --format='%h %s' "$range" |
	awk '{ subject = substr($0, index($0, " ") + 1) }
	     subject !~ /^[a-z0-9_.\/, -]+: [^ ]/ || subject ~ /\.$|;/ ||
	     length(subject) > 72')
[ -z "$bad" ] && exit 0
echo "$bad"
exit 1
