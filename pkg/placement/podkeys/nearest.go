// SPDX-License-Identifier: Apache-2.0

package podkeys

import "strings"

// longest is the longest name of a key, without its domain: that of the API server.
const longest = 63

// nearest returns the key among known whose name is Nearest to that of key.
func nearest(key string, known []string) string {
	return Nearest(key[strings.LastIndex(key, "/")+1:], known)
}

// Nearest returns the one of known that is the fewest edits away from a name, the first of equals; empty
// if more than a third of the name would have to change. Domain and case are ignored.
func Nearest(name string, known []string) string {
	if len(name) > longest {
		return ""
	}
	name = strings.ToLower(name)
	best, least := "", max(1, len(name)/3)+1
	for _, k := range known {
		if d := distance(name, strings.ToLower(strings.TrimPrefix(k, Domain))); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is the number of bytes that have to be changed, added, left out, or swapped with the next one
// to turn a into b.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			differs := 1
			if a[i-1] == b[j-1] {
				differs = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+differs)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
