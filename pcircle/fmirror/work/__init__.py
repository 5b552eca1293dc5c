"""What a mirror does in each rank: judging, keeping, linking, setting aside, finding surplus."""
