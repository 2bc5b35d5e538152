package doctor

var JudgeSpace = judgeSpace
