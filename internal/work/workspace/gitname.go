package workspace

import "strings"

// IsGitName reports whether a file system may take name for ".git". Git runs what a .git folder configures, so an
// agent must not deliver a file in one. A delivery is cloned on other systems, so their rules count too: Windows and
// HFS+ ignore case, Windows drops dots and spaces at the end of a name and what follows a colon, and knows .git as
// git~1, and HFS+ ignores some characters.
func IsGitName(name string) bool {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
			return -1
		}
		return r
	}, name)
	name, _, _ = strings.Cut(name, ":")
	name = strings.ToLower(strings.TrimRight(name, ". "))
	return name == ".git" || name == "git~1"
}
