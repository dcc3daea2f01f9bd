// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"regexp"
	"strings"
)

// plainWord matches a word that a POSIX shell takes literally.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// CommandLine writes words so that a POSIX shell reads exactly these.
func CommandLine(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = quote(word)
	}
	return strings.Join(quoted, " ")
}

// quote writes a word so that a POSIX shell reads exactly that word.
func quote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
