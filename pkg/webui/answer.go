// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/klog/v2"
)

// small is the length of an answer, in bytes, below which it is not worth to compress it.
const small = 1 << 10

// problem is the body of an answer that is an error.
type problem struct {
	Error string `json:"error"`
	Hint  string `json:"hint"`
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	var known *Refusal
	if !errors.As(err, &known) {
		klog.FromContext(r.Context()).Error(err, "Cannot answer", "path", r.URL.Path)
		known = &Refusal{http.StatusInternalServerError, "the server cannot answer", "see the server's log"}
	}
	switch known.Code {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	body, _ := json.Marshal(problem{known.Text, known.How}) // two strings: it cannot fail
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(known.Code)
	_, _ = w.Write(body) // nobody is left to tell
}

// answerJSON answers with a document, or with 304 if the caller has it.
func answerJSON(w http.ResponseWriter, r *http.Request, document any) {
	body, err := json.Marshal(document)
	if err != nil {
		refuse(w, r, err)
		return
	}
	sum := sha256.Sum256(body)
	tag := `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-cache") // it may be kept, and is asked for again
	h.Set("ETag", tag)
	h.Set("Vary", "Accept-Encoding, Authorization")
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if len(body) < small || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body) // nobody is left to tell
		return
	}
	h.Set("Content-Encoding", "gzip")
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is valid
	_, _ = z.Write(body)
	_ = z.Close()
}
