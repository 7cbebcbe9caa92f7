package check

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// Round is what a delivery tool says of one time that it compared, and corrected what differed.
type Round struct {
	// Written names what it wrote.
	Written []string `json:"written"`
	// Missing is what is not healthy yet.
	Missing string `json:"missing"`
	// Failure is why the round came to no end.
	Failure string `json:"failure"`
}

// Rounds makes one for each line that it is given, and says what came of it on a line.
func Rounds(round func(*T) Round) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var done Round
		if failure := attempt(func(t *T) { done = round(t) }); failure != "" {
			done = Round{Failure: failure}
		}
		said, err := json.Marshal(done)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(said))
	}
}
