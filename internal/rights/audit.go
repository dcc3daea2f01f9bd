// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// Requests reads an audit log, one JSON event a line, and returns each user's requests, by the user's
// name, with the greatest HTTP status code of their responses. A line that is no event, such as an
// incomplete last one, is skipped.
func Requests(log io.Reader) (map[string]map[Right]int, error) {
	const longest = 1 << 20 // bytes of a line
	out := map[string]map[Right]int{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, longest)
	for lines.Scan() {
		var e struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      *struct{ APIGroup, Resource, Subresource, Namespace, Name string }
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.ObjectRef == nil {
			continue
		}
		user, o := e.User.Username, e.ObjectRef
		if out[user] == nil {
			out[user] = map[Right]int{}
		}
		r := Right{e.Verb, o.APIGroup, o.Resource, o.Subresource, o.Namespace, o.Name}
		out[user][r] = max(out[user][r], e.ResponseStatus.Code)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	return out, nil
}
