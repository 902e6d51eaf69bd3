package coord

import (
	"strings"
	"unicode/utf8"
)

// ValidatePath holds ZooKeeper's rules: absolute, no empty, "." or ".." part, no
// slash at the end, no control or private-use character. The error is ErrBadArguments.
func ValidatePath(path string) error {
	if path == "/" {
		return nil
	}
	if path == "" || path[0] != '/' || path[len(path)-1] == '/' {
		return ErrBadArguments
	}
	for rest := path[1:]; rest != ""; {
		part, after, more := strings.Cut(rest, "/")
		if part == "" || part == "." || part == ".." || more && after == "" {
			return ErrBadArguments
		}
		rest = after
	}
	if !utf8.ValidString(path) {
		return ErrBadArguments
	}
	for _, r := range path {
		if r < 0x20 || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 && r <= 0xffff {
			return ErrBadArguments
		}
	}
	return nil
}

// Split gives a path's parent and its own name.
func Split(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		return "/", path[i+1:]
	}
	return path[:i], path[i+1:]
}
